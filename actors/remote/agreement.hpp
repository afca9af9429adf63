// What a session and a loader host compare before the first lease (rule H2), and how a host finds the data. Pure, except check_lists.
#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/remote/host_messages.hpp"
#include "runtime/base/result.hpp"

#include <penstock/config.hpp>
#include <penstock/dataset.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::hosts {

/// How the versions of the two sides differ, with both values; empty: they are equal.
[[nodiscard]] std::string difference_of_versions(const std::string& penstock_there, std::uint32_t protocol_there,
                                                 const std::string& penstock_here);
[[nodiscard]] std::string difference_of_datasets(const dataset_description& here,
                                                 const protocol::dataset_described& there);

/// How facts about a worker program, by name, differ; empty: they do not. The host may send several values for one fact; one
/// of them must match.
[[nodiscard]] std::string difference_of_facts(const string_map& here, const std::vector<wire_fact>& there);
[[nodiscard]] std::vector<wire_fact> as_wire(const string_map& facts);

/// The session's config on the host: every path of data goes through `own` (from `--data`) and the session's path_map, the
/// longest matching folder first. `[storage] cache` is left out. Refuses (errc::config) a path or URL outside
/// the folders in `own`, if there are any.
result<config> config_on_host(config settings, const string_map& own);

/// The inverse of that mapping, for the arguments of a worker program: all lists of arguments that the session's config
/// may contain. A path is a whole argument, or the part after its first "=". There are several lists if several of the
/// session's folders map to one folder here.
[[nodiscard]] std::vector<std::vector<std::string>> arguments_of_session(const std::vector<std::string>& arguments, const config& here,
                                                                         const string_map& own);

/// Checks `text`, the contents of the list of files at the path `list` (dataset/listing/found_files.hpp). Refuses
/// (errc::config) a line outside the folders in `own`.
result<void> check_list(const std::string& list, std::string_view text, const string_map& own);

/// Reads and checks the lists that this config names on the host.
result<void> check_lists(const config& here, const string_map& own);

}  // namespace penstock::hosts
