// Empty: its target exists only to precompile heavy.hpp.
