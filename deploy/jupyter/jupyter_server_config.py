"""JupyterLab's settings on Binder, in the classroom image and on The Littlest JupyterHub (binder/postBuild)."""

from typing import Any

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

from llmlesson.limits import usable_memory

c = get_config()  # noqa: F821  # Jupyter gives it to this file

LESSON = "/lab/tree/notebooks/00_start_here.ipynb"
c.ServerApp.default_url = c.LabApp.default_url = LESSON

BYTES_PER_KERNEL = 1_600_000_000  # more than any lesson takes, with JupyterLab's server


class OldKernelsMakeRoom(AsyncMappingKernelManager):
    """Ends the kernel that rested longest when there is no memory for one more.

    Who follows a lesson's link to the next one leaves the old kernel running. Where 2 GB are the limit, as on Binder,
    the system would end the new one in the middle of its lesson.
    """

    async def start_kernel(self, **options: Any) -> str:
        most = usable_memory().total // BYTES_PER_KERNEL
        resting = [kernel for kernel in self.list_kernels() if kernel["execution_state"] != "busy"]
        resting.sort(key=lambda kernel: kernel["last_activity"])
        for kernel in resting[: max(0, 1 + len(self.list_kernel_ids()) - most)]:
            self.log.warning("Ending kernel %s: there is memory for %d.", kernel["id"], most)
            await self.shutdown_kernel(kernel["id"])
        return await super().start_kernel(**options)


c.ServerApp.kernel_manager_class = OldKernelsMakeRoom
