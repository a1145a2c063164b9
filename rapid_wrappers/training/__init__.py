"""What every training script needs and no method is about; nothing here touches a loss, a rollout or a buffer's rows."""
