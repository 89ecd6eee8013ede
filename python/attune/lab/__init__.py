"""The lab's host for torch: Attune's kernels and the attentions that torch can call, measured in the same rounds.

Two processes never share a round. So with torch in the game this process is the host: it captures every contender in a
CUDA graph and hands the graphs to the measuring engine, libattune_lab_engine.so (docs/measuring.md).
`attune bench --peers` starts it as `python3 -m attune.lab`.
"""
