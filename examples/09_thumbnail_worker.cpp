// A job function: a small picture of a JPEG file. This is the worker program; the program that calls it is
// 09_thumbnails.cpp. Links penstock::worker and libjpeg.
#include <penstock/job.hpp>

#include <jpeglib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t longest_side = 64;

struct picture {
  std::size_t width = 0, height = 0;
  std::vector<unsigned char> rgb;
};

// libjpeg's errors are not handled: on a broken file it prints the reason and calls exit(1). That would end
// your own program; here it ends one worker and is blamed on one job.
picture decode(std::FILE* file) {
  jpeg_error_mgr errors;
  jpeg_decompress_struct jpeg;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_stdio_src(&jpeg, file);
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  picture made{jpeg.output_width, jpeg.output_height, {}};
  made.rgb.resize(made.width * made.height * 3);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = made.rgb.data() + jpeg.output_scanline * made.width * 3;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  return made;
}

// The argument is the path of a file; the result is a binary PPM.
void thumbnail(penstock::JobCall& call) {
  const std::string path(call.text());
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  // An exception is the job's outcome: the worker continues, and the job is not retried.
  if (!file) throw std::runtime_error("cannot open " + path);
  const picture whole = decode(file.get());

  // Each pixel is the mean of a box of the picture.
  const std::size_t box = (std::max(whole.width, whole.height) + longest_side - 1) / longest_side;
  const std::size_t width = std::max<std::size_t>(1, whole.width / box);
  const std::size_t height = std::max<std::size_t>(1, whole.height / box);
  const std::string head = "P6 " + std::to_string(width) + " " + std::to_string(height) + " 255\n";
  // Write directly to where the caller reads it: no copy.
  const std::span<std::byte> result = call.result(head.size() + width * height * 3);
  std::memcpy(result.data(), head.data(), head.size());
  std::byte* out = result.data() + head.size();
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t colour = 0; colour < 3; ++colour) {
        std::size_t sum = 0;
        std::size_t pixels = 0;
        for (std::size_t v = y * box; v < std::min((y + 1) * box, whole.height); ++v) {
          for (std::size_t u = x * box; u < std::min((x + 1) * box, whole.width); ++u, ++pixels)
            sum += whole.rgb[(v * whole.width + u) * 3 + colour];
        }
        *out++ = static_cast<std::byte>(sum / pixels);
      }
    }
  }
}

}  // namespace

int main() {
  return penstock::job_main({{"thumbnail", thumbnail}});
}
