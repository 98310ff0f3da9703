"""The API dialects that the gateway accepts, one file each."""
