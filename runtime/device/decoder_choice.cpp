#include "runtime/device/decoder_choice.hpp"

#include "runtime/device/make_choice.hpp"
#include "runtime/device/nvjpeg.hpp"

#include <fmt/core.h>

#ifdef PENSTOCK_HAVE_CUDA
#include "runtime/base/text.hpp"
#include "runtime/device/cuda/cuda_device.hpp"
#endif

namespace penstock::device {

bool may_decode_on_device(const config& settings) {
  return settings.image.decoder != decoder_rule::cpu && settings.datasets.empty() && settings.dataset.type == dataset_type::image_folder;
}

result<decoder_choice> choose_decoder(const config& settings) {
  decoder_choice choice;
  if (!may_decode_on_device(settings)) return choice;
  const auto where = resolve_choice(settings.gpu.device);
  if (!where) return choice;  // opening the device will report why
  if (!where->cuda) {
    choice.notice = "the host device decodes no JPEGs: the workers decode all of them";
    return choice;
  }
  const auto library = nvjpeg_library::open();
  if (!library) {
    if (settings.image.decoder == decoder_rule::gpu) return tl::unexpected(library.error());
    choice.notice = library.error().message + "; the workers decode all JPEGs";
    return choice;
  }
  choice.by = settings.image.decoder;
#ifdef PENSTOCK_HAVE_CUDA
  choice.decoder =
      fmt::format("nvJPEG {} on {}", (*library)->version_text(), shortened(name_of_gpu(*where->cuda), 40));
#endif
  return choice;
}

}  // namespace penstock::device
