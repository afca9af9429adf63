# The build writes _version.py: the version comes from CMakeLists.txt.
__version__: str
