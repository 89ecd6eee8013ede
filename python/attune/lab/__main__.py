"""python3 -m attune.lab"""

import sys

from attune.lab.command import main

sys.exit(main())
