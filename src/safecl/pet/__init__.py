"""Parameter-efficient tuning: small trainable modules on a frozen backbone; and full fine-tuning of
a copy of it.
"""
