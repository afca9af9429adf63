// Nothing: its target exists to precompile heavy.hpp.
