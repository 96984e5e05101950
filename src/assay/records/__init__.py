"""What is written to disk and handed from stage to stage: one file per record."""
