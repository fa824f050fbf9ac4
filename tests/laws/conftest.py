"""Shape checks on for this package, even if the top-level package does not import it."""

from jaxtyping import install_import_hook

with install_import_hook("stochflow", "beartype.beartype"):
    import stochflow.laws  # noqa: F401
