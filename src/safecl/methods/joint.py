"""Joint training: all classes at once, with a ridge head on them: the bound that continual methods
are held against.
"""

from safecl.methods.ranpac import RanPAC
from safecl.methods.settings.joint import JointSettings


class Joint(RanPAC):
    """A run gives it the whole stream as one session. A session after that is added to the ridge
    head.
    """

    outputs = ("joint",)
    settings: JointSettings
