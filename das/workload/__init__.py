"""Which integer queries serve a workload: residual planners, HDMM, ours."""
