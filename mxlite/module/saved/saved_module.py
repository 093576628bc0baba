"""Files of a module: symbol, parameters, states of the optimizer, state of training."""

from __future__ import annotations

from typing import Any

from ...core import replacing
from ...core.wanted import wanted_path
from ...formats import save_params, stored_params
from ...ndarray.stored import Source
from ..bound_module import BoundModule
from ..optim import states
from . import resume
from .statefile import Packed


class SavedModule(BoundModule):
    """A module of one symbol with its files."""

    _preload_states: str | None = None  # of a checkpoint, for an optimizer that is still to come

    def save_params(self, fname: str) -> None:
        """Write parameters as MXNet's container with `arg:` and `aux:` names. No copy of them is made."""
        self.need(params=True)
        save_params(fname, *self._parameters())

    def load_params(self, fname: str) -> None:
        """Read what `save_params`, or MXNet, wrote: a piece at a time into the arrays that are there."""
        self.set_params(*stored_params(fname))

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Write PREFIX-symbol.json, PREFIX-%04d.params and, if asked, PREFIX-%04d.states."""
        self._symbol.save(f"{prefix}-symbol.json")
        self.save_params(f"{prefix}-{epoch:04d}.params")
        self.logger.info('Saved checkpoint to "%s-%04d.params"', prefix, epoch)
        if save_optimizer_states:
            self.save_optimizer_states(f"{prefix}-{epoch:04d}.states")
            self.logger.info('Saved optimizer state to "%s-%04d.states"', prefix, epoch)

    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states (mxlite's own form; never a pickle)."""
        with replacing(fname) as file:
            self._packed_states().write(file)

    def load_optimizer_states(self, fname: str) -> None:
        """Read what `save_optimizer_states` wrote; MXNet's pickles are refused."""
        self._restore_states(Source.opened(wanted_path("load_optimizer_states: fname", fname)))

    def _packed_states(self) -> Packed:
        self.need(params=True, optimizer=True)
        return self._training.packed_states(self._binding)

    def _restore_states(self, source: Source) -> None:
        self.need(params=True, optimizer=True)
        self._training.restore_states(source, self._binding)

    # -- resuming ------------------------------------------------------------------------------

    @property
    def resume_bytes(self) -> int:
        args, aux = self._parameters()
        return states.nbytes([*args.values(), *aux.values(), *self._training.updater.states.values()])

    def resume_moment(self, train_data: Any) -> resume.Moment:
        return resume.Moment.of(train_data, self._binding.context)

    def save_resume_state(
        self, prefix: str, epoch: int, nbatch: int, train_data: Any, moment: Any = None
    ) -> None:
        """Write PREFIX.resume: everything that determines further training. One file, replaced whole."""
        moment = self.resume_moment(train_data) if moment is None else moment
        state, scale = self._packed_states(), self._training.scale_state(self._binding)
        resume.save(prefix, epoch, nbatch, *self._parameters(), state, moment, scale)

    def load_resume_state(self, prefix: str, train_data: Any) -> tuple[int, int] | None:
        """Continue from PREFIX.resume: (epoch, batches done in it); None if there is no such file."""
        found = resume.load(prefix)
        if found is None:
            self.logger.info("There is no %s.resume to go on from; starting anew.", prefix)
            return None
        self.set_params(found.args, found.aux)
        self._restore_states(found.optimizer)
        self._training.restore_scale(found.loss_scale, self._binding)
        found.restore_randomness(train_data, self._binding.context)
        return found.epoch, found.nbatch
