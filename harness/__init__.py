"""liftbench: does this agent skill make this model write better GPU kernels?"""

__version__ = "0.1.0"
