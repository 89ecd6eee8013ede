from . import attention as attention
from . import functional as functional
