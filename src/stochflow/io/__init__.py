"""Model files: safe to open, whoever sent them.

A trained model as one file, or a folder: JSON that says what it is, and its weights as safetensors. Everything is
checked before anything is built, and nothing in a file is ever run: there is no pickle. What lives here turns modules
into specs and arrays and back, and knows the container and its earlier formats; it trains nothing and draws nothing.
Rooms further on store what is theirs through `pack`, `unpack`, `write_archive` and `read_archive`.
"""

from .archive import peek as peek, read_archive as read_archive, write_archive as write_archive
from .errors import ModelFileError as ModelFileError
from .model import load as load, save as save
from .trees import pack as pack, unpack as unpack
