"""Graphs of nodes and entries: what an operator says of itself, inference, gradients, rewriting."""

from .attrs import attr_fields as attr_fields, attr_text as attr_text, parse_attrs as parse_attrs
from .gradient import (
    backward as backward,
    gradient as gradient,
    needs_head_gradient as needs_head_gradient,
)
from .infer import (
    dtype_from_text as dtype_from_text,
    infer_shapes as infer_shapes,
    infer_types as infer_types,
)
from .ir import (
    Entry as Entry,
    Graph as Graph,
    Node as Node,
    output_name as output_name,
    Shape as Shape,
    variable as variable,
)
from .mixed_precision import LOSS_SCALE as LOSS_SCALE, mixed_precision as mixed_precision, Policy as Policy
from .opdef import (
    DType as DType,
    NoAttrs as NoAttrs,
    Op as Op,
    Shapes as Shapes,
    Signature as Signature,
    Touched as Touched,
)
from .rewrite import in_order as in_order, Rewriter as Rewriter
from .update import (
    fuse_updates as fuse_updates,
    Scaling as Scaling,
    state_name as state_name,
    UpdateRule as UpdateRule,
)
