"""The resources that are served, built-in and custom, and how objects of each are decoded, validated and encoded."""
