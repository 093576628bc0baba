"""mx.log, by which older programs make their loggers."""

import logging
import re

import mxlite as mx


def test_a_logger_writes_level_time_and_place(tmp_path):
    file = tmp_path / "train.log"
    logger = mx.log.get_logger("mxlite-tests-log", str(file), level=mx.log.INFO)
    assert mx.log.getLogger("mxlite-tests-log") is logger is logging.getLogger("mxlite-tests-log")
    logger.info("epoch %d", 3)
    logger.debug("not this")
    for handler in logger.handlers:
        handler.flush()
    (line,) = file.read_text().splitlines()
    place = r"\S+test_log_names\.py:test_a_logger\w+:\d+"
    assert re.fullmatch(rf"I\d{{4}} \d\d:\d\d:\d\d \d+ {place}\] epoch 3", line)


def test_the_root_logger_stays_as_it_is():
    before = list(logging.getLogger().handlers)
    assert mx.log.get_logger() is logging.getLogger() and logging.getLogger().handlers == before
