"""Events, metrics and logs, read off decisions and changes. The rooms that decide never report."""
