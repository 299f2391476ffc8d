"""What tests are made of: states, nodes, datasets and folders, one builder of each."""
