// The C structs of DLPack, for both versions of the protocol: 0.x ("dltensor") and 1.0
// ("dltensor_versioned"). Declared here because they are a stable ABI, so no library is needed. Used only by
// lease.cpp.
#pragma once

#include <cstdint>

namespace penstock::python::dlpack {

enum class device_type : std::int32_t { cpu = 1, cuda = 2 };

struct device {
  std::int32_t type;
  std::int32_t id;
};

enum class type_code : std::uint8_t { signed_integer = 0, unsigned_integer = 1, floating = 2, bfloat = 4 };

struct data_type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct tensor {
  void* data;
  dlpack::device device;
  std::int32_t dimensions;
  data_type type;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements
  std::uint64_t byte_offset;
};

/// The capsule "dltensor".
struct managed_tensor {
  dlpack::tensor tensor;
  void* context;
  void (*deleter)(managed_tensor*);
};

struct version {
  std::uint32_t major;
  std::uint32_t minor;
};

/// The capsule "dltensor_versioned".
struct managed_tensor_versioned {
  dlpack::version version;
  void* context;
  void (*deleter)(managed_tensor_versioned*);
  std::uint64_t flags;
  dlpack::tensor tensor;
};

}  // namespace penstock::python::dlpack
