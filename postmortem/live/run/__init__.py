"""`postmortem run -- COMMAND`: a job runs as it would alone, and evidence of its failure is saved.

Two rules hold in all modules. The child sees and does exactly as it would alone. A failure of ours (a full disk,
no cgroup, no permission) costs evidence, never the job nor its exit code.
"""
