"""Events, metrics, visibility and logs, derived from decisions and changes. Packages that decide do not report."""
