"""What runs beside the creates: how it begins, and who begins anew in a forked child."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.kit.patience import PATIENCE


def output(program: str) -> list[str]:
    """Run a program; return the lines it prints."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return run.stdout.splitlines()


def test_the_runtime_may_be_needed_in_the_midst_of_its_start() -> None:
    """A finalizer or a signal handler needs an alarm just then; here a policy for loops does. It waited for itself."""
    program = """
        import asyncio, queue, threading
        from backoff_ctrl.k8s.gate.runtime.host import RUNTIME, THREAD

        rung = queue.SimpleQueue()

        class Policy(asyncio.DefaultEventLoopPolicy):
            asked = False
            def new_event_loop(self):
                if not self.asked:
                    self.asked = True
                    RUNTIME.call_later(0, lambda: rung.put("within"))
                return super().new_event_loop()

        asyncio.set_event_loop_policy(Policy())
        RUNTIME.call_later(0, lambda: rung.put("after"))
        print(sorted(rung.get(timeout=200) for _ in range(2)))
        ours = [each for each in threading.enumerate() if each.name == THREAD]
        for each in ours[:-1]:
            each.join(200)  # the one that was not needed ends
        print(sum(each.is_alive() for each in ours))
    """
    assert output(program) == ["['after', 'within']", "1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_one_that_fails_in_a_forked_child_keeps_no_other_from_beginning_anew() -> None:
    """A client of a subclass, perhaps: the ledgers behind it kept their parent's locks and line."""
    program = """
        import os, warnings
        from backoff_ctrl.k8s.gate.runtime.host import after_fork
        warnings.simplefilter("ignore", DeprecationWarning)

        class Part:
            def __init__(self, name):
                self.name = name
                after_fork(self.renew)
            def renew(self):
                if self.name == "broken":
                    raise OSError("no certificate")
                os.write(1, f"{self.name}\\n".encode())

        parts = [Part(name) for name in ("first", "gone", "broken", "last")]
        del parts[1]
        after_fork(lambda: os.write(1, b"function\\n"))
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    """
    assert output(program) == ["first", "last", "function"]
