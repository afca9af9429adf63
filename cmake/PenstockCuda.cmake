# Decides whether the CUDA device is built: PENSTOCK_HAVE_CUDA. The toolkit is never installed by this project.

set(PENSTOCK_CUDA_ARCHITECTURES "80-real;86-real;89-real;90-real;100-real;80-virtual" CACHE STRING
  "Architectures whose machine code is embedded; the last one is PTX for everything newer")

set(PENSTOCK_HAVE_CUDA OFF)
if(NOT PENSTOCK_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES "${PENSTOCK_CUDA_ARCHITECTURES}")
    endif()
    enable_language(CUDA)
    # CMake 3.25 does not know that nvcc 12 and later support C++20, which our public headers need.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit REQUIRED)
    set(PENSTOCK_HAVE_CUDA ON)
    # Only headers; without them, profilers do not show the names of a batch's stages.
    find_path(PENSTOCK_NVTX_INCLUDE nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_CACHE)
  elseif(PENSTOCK_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PENSTOCK_CUDA=ON, but nvcc was not found: put it on PATH or set CUDACXX")
  endif()
endif()
message(STATUS "penstock: CUDA device ${PENSTOCK_HAVE_CUDA}")
