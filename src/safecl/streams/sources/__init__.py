"""Where pictures come from: a folder, a table, arrays, a torch or Hugging Face dataset."""
