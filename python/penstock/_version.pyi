# The build writes _version.py: the version is that of CMakeLists.txt.
__version__: str
