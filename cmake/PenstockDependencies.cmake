# Every library that penstock uses, by target; README.md lists what each is for.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tl-expected REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(JPEG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SPNG REQUIRED IMPORTED_TARGET spng)

find_path(PENSTOCK_RANDOM123_INCLUDE Random123/philox.h REQUIRED)
find_path(PENSTOCK_XXHASH_INCLUDE xxhash.h REQUIRED)
# Only the headers: the library is loaded when it is needed (runtime/net/tls/tls_library.hpp).
find_path(PENSTOCK_OPENSSL_INCLUDE openssl/ssl.h REQUIRED)
# Likewise (runtime/storage/curl_library.hpp).
find_path(PENSTOCK_CURL_INCLUDE curl/curl.h REQUIRED)

# Only Asio, which is header-only: no library of Boost is linked.
find_path(PENSTOCK_BOOST_INCLUDE boost/asio/io_context.hpp REQUIRED)
add_library(penstock_asio INTERFACE)
target_include_directories(penstock_asio SYSTEM INTERFACE "${PENSTOCK_BOOST_INCLUDE}")
target_compile_definitions(penstock_asio INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ERROR_CODE_HEADER_ONLY)
target_link_libraries(penstock_asio INTERFACE Threads::Threads)

if(PENSTOCK_ACTORS)
  find_package(CAF REQUIRED)
  find_package(CLI11 REQUIRED)
endif()
if(PENSTOCK_TESTS)
  find_package(Catch2 3 REQUIRED)
  include(Catch)
endif()
