"""JupyterLab's settings on Binder, in the classroom image and on The Littlest JupyterHub (binder/postBuild)."""

from typing import Any

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from llmlesson.limits import usable_memory

c = get_config()  # noqa: F821  # Jupyter defines it

LESSON = "/lab/tree/notebooks/00_start_here.ipynb"
c.ServerApp.default_url = c.LabApp.default_url = LESSON

BYTES_PER_KERNEL = 1_600_000_000  # more than any lesson takes, including JupyterLab's server


class OldKernelsMakeRoom(AsyncMappingKernelManager):
    """Shuts down the kernel that has been idle longest when there is no memory for one more.

    Learners who follow a link to the next lesson leave the old kernel running. With a limit of 2 GB, as on Binder, the
    system would then kill the new kernel in the middle of its lesson.
    """

    async def start_kernel(self, **options: Any) -> str:
        most = usable_memory().total // BYTES_PER_KERNEL
        resting = [kernel for kernel in self.list_kernels() if kernel["execution_state"] != "busy"]
        resting.sort(key=lambda kernel: kernel["last_activity"])
        for kernel in resting[: max(0, 1 + len(self.list_kernel_ids()) - most)]:
            self.log.warning("Shutting down kernel %s: there is only memory for %d.", kernel["id"], most)
            await self.shutdown_kernel(kernel["id"])
        return await super().start_kernel(**options)


c.ServerApp.kernel_manager_class = OldKernelsMakeRoom
