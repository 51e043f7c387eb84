from .export import export_code

__all__ = ["export_code"]
