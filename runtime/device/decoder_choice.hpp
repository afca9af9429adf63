// Chooses what decodes JPEGs in a session: interprets [image] decoder on this machine. Used by sessions and by doctor.
#pragma once

#include "runtime/base/result.hpp"

#include <penstock/config.hpp>

#include <string>

namespace penstock::device {

struct decoder_choice {
  decoder_rule by = decoder_rule::cpu;
  std::string decoder;  ///< the device's decoder, on which pixels depend (rule S43): "nvJPEG 13.0.1 on NVIDIA H200"
  std::string notice;   ///< for the log: why `by` differs from the config
};

/// Whether [image] decoder allows a capable device to decode this dataset.
[[nodiscard]] bool may_decode_on_device(const config& settings);

/// On the host device, and for datasets other than image folders, workers decode. Without nvJPEG, "hybrid" lets the
/// workers decode everything, and "gpu" is refused (errc::device_unavailable). Needs no GPU and creates no context.
result<decoder_choice> choose_decoder(const config& settings);

}  // namespace penstock::device
