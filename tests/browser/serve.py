"""JupyterLab that ends with the process that started it."""

import sys

from jupyterlab.labapp import main
from parent import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    sys.exit(main())
