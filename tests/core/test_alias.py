"""`mxnet` as another name of mxlite."""

import subprocess
import sys

from mxlite.core import alias

PROGRAM = """
from mxlite.core.alias import stand_in
mxnet = stand_in("mxnet")
import mxlite
import mxnet as mx
from mxnet import nd
assert mx is mxnet and mx is not mxlite and mx.nd is nd is mxlite.nd
assert mx.__version__ == "1.9.1" != mxlite.__version__, mx.__version__
mx.answer = 42
assert mxlite.answer == 42 and "answer" in dir(mx)
del mx.answer
assert not hasattr(mxlite, "answer")
import mxnet.gluon.data.vision
assert mx.gluon.data.vision is mxlite.gluon.data.vision
"""


def test_the_other_name_has_everything_and_the_version_of_the_interface():
    """GluonCV, GluonNLP and Sockeye ask `mxnet.__version__`, and refuse releases before 1.0."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_a_stand_in_has_no_other_state():
    module = type(sys)("something")
    module.value = 1
    other = alias.StandIn("else", module)
    module.value = 2
    assert (other.value, other.__name__) == (2, "else")
