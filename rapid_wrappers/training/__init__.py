"""What every training script needs and no method is about: arguments, environments, the run's folder, log and end.

Nothing here touches a loss, a gradient, a rollout or the content of a buffer.
"""
