"""custom_models"""
