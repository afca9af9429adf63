// nvJPEG without penstock: the baseline for [image] decoder = "gpu". Decodes the plain JPEGs of a folder from page-locked
// memory, whole batches at a time on one thread, resizes each to 224 x 224 with our kernel, and waits for each batch. Run
// by jpeg_decoders.py.
//
//   nvjpeg-alone FOLDER SECONDS
//
// Prints "BACKEND BATCH PICTURES_A_SECOND" for each backend and batch size.
#include "runtime/base/encoded_picture.hpp"
#include "runtime/dataset/picture/jpeg_check.hpp"
#include "runtime/dataset/picture/probe.hpp"
#include "runtime/device/cuda/resize.hpp"
#include "runtime/device/nvjpeg.hpp"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

using namespace penstock;
using clock = std::chrono::steady_clock;

struct picture {
  const unsigned char* file = nullptr;  // page-locked
  std::size_t bytes = 0;
  extent size;
};

void demand(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "nvjpeg-alone: %s\n", what);
  std::exit(1);
}

std::vector<picture> pictures_in(const char* folder) {
  std::vector<picture> all;
  jpeg_checker checker;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const auto file = std::as_bytes(std::span(text));
    const auto info = probe(file);
    const auto bytes = checker.plain_bytes(file);
    if (!info || !bytes || *bytes > encoded_file_bytes_max) continue;
    void* memory = nullptr;
    demand(cudaHostAlloc(&memory, *bytes, cudaHostAllocDefault) == cudaSuccess, "page-locking files failed");
    std::memcpy(memory, file.data(), *bytes);
    all.push_back({static_cast<unsigned char*>(memory), *bytes, info->stored});
  }
  return all;
}

double rate(const device::nvjpeg_library& library, const std::vector<picture>& pictures, int backend,
            std::size_t batch, double seconds) {
  nvjpegHandle* handle = nullptr;
  nvjpegJpegState* state = nullptr;
  if (library.create(backend, nullptr, nullptr, 0, &handle) != 0 || library.create_state(handle, &state) != 0)
    return 0;
  demand(library.begin_batch(handle, state, static_cast<int>(batch), 1,
                             device::nvjpeg_abi::rgb_interleaved) == 0,
         "nvJPEG cannot be initialised");
  std::size_t largest = 0;
  for (const picture& p : pictures)
    largest = std::max(largest, std::size_t{p.size.width} * p.size.height * 3);
  constexpr std::size_t result_bytes = std::size_t{224} * 224 * 3;
  std::uint8_t* pixels = nullptr;
  std::uint8_t* results = nullptr;
  cudaStream_t stream = nullptr;
  demand(cudaMalloc(reinterpret_cast<void**>(&pixels), largest * batch) == cudaSuccess &&
             cudaMalloc(reinterpret_cast<void**>(&results), result_bytes * batch) == cudaSuccess &&
             cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess,
         "allocating failed");
  std::vector<const unsigned char*> files(batch);
  std::vector<std::size_t> lengths(batch);
  std::vector<device::nvjpeg_abi::image> images(batch);
  std::size_t at = 0;
  std::size_t done = 0;
  auto begin = clock::now();
  for (bool warm = false;;) {
    const double passed = std::chrono::duration<double>(clock::now() - begin).count();
    if (warm && passed > seconds) {
      library.destroy_state(state);
      library.destroy(handle);
      cudaFree(pixels);
      cudaFree(results);
      cudaStreamDestroy(stream);
      return static_cast<double>(done) / passed;
    }
    if (!warm && passed > 0.3) {
      warm = true;
      done = 0;
      begin = clock::now();
    }
    std::vector<device::resize_batch> resizes((batch + device::resize_pictures_max - 1) /
                                              device::resize_pictures_max);
    for (std::size_t i = 0; i < batch; ++i, ++at) {
      const picture& p = pictures[at % pictures.size()];
      files[i] = p.file;
      lengths[i] = p.bytes;
      images[i].channel[0] = pixels + largest * i;
      images[i].pitch[0] = std::size_t{p.size.width} * 3;
      device::resize_batch& resize = resizes[i / device::resize_pictures_max];
      resize.to = results;
      resize.height = resize.width = 224;
      resize.picture[resize.pictures++] = {
          images[i].channel[0],         p.size.width, p.size.height, 0, 0, p.size.height, p.size.width,
          static_cast<std::uint32_t>(i)};
    }
    demand(library.decode_batch(handle, state, files.data(), lengths.data(), images.data(), stream) == 0,
           "nvJPEG refuses a batch");
    for (const device::resize_batch& resize : resizes)
      demand(device::launch_resize(resize, stream) == cudaSuccess, "the resize failed");
    demand(cudaStreamSynchronize(stream) == cudaSuccess, "waiting failed");
    done += batch;
  }
}

}  // namespace

int main(int count, char** words) {
  demand(count == 3, "usage: nvjpeg-alone FOLDER SECONDS");
  const auto library = device::nvjpeg_library::open();
  demand(library.has_value(), library ? "" : library.error().message.c_str());
  const auto pictures = pictures_in(words[1]);
  demand(!pictures.empty(), "the folder has no plain JPEG");
  for (const int backend : {device::nvjpeg_abi::backend_hardware, device::nvjpeg_abi::backend_gpu_hybrid}) {
    for (const std::size_t batch : {32U, 64U, 128U, 256U}) {
      fmt::print("{} {} {:.0f}\n", backend == device::nvjpeg_abi::backend_hardware ? "engines" : "kernels",
                 batch, rate(**library, pictures, backend, batch, std::atof(words[2])));
      std::fflush(stdout);
    }
  }
}
