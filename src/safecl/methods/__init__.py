"""Continual-learning algorithms behind one contract: ``learn(session, fit)``,
``logits(images)``.
"""
