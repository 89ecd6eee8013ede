"""python3 -m attune.lab [agree | cpu | host | llama | masked | train | trial]"""

import sys

from attune.lab import agree, command, cpu, host, llama, masked, train, trial

OTHERS = {
    "agree": agree,
    "cpu": cpu,
    "host": host,
    "llama": llama,
    "masked": masked,
    "train": train,
    "trial": trial,
}
_name = sys.argv[1] if len(sys.argv) > 1 else ""
if _name in OTHERS:
    other = OTHERS[_name]
    sys.exit(command.guarded(other.run, other.parser(), sys.argv[2:]))
sys.exit(command.main())
