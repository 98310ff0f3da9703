"""Images: validation, image processors, VLM families and image embeddings."""
