"""What a Python program uses of Assay: `import assay` has its public names; see docs/python.md."""
