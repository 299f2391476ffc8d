"""Does a whole run do what its run file says? On one machine and on a cluster."""
