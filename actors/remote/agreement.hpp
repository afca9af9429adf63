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

/// How they differ, with both values; empty: they are equal.
[[nodiscard]] std::string difference_of_versions(const std::string& penstock_there, std::uint32_t protocol_there,
                                                 const std::string& penstock_here);
[[nodiscard]] std::string difference_of_datasets(const dataset_description& here,
                                                 const protocol::dataset_described& there);

/// The same for facts about a worker program, by name. The host may send several values of one fact: one of them must be equal.
[[nodiscard]] std::string difference_of_facts(const string_map& here, const std::vector<wire_fact>& there);
[[nodiscard]] std::vector<wire_fact> as_wire(const string_map& facts);

/// The session's config on the host: every path of data goes through `own` (from `--data`) and the session's path_map, the
/// longest matching folder first. `[storage] cache` is left out. Refuses (errc::config) a path or URL outside
/// the folders in `own`, if there are any.
result<config> config_on_host(config settings, const string_map& own);

/// The inverse, for the arguments of a worker program: the lists that the session may have in its config. A path is a whole argument,
/// or what follows its first "=". There are several lists if several folders of the session are the same folder here.
[[nodiscard]] std::vector<std::vector<std::string>> arguments_of_session(const std::vector<std::string>& arguments, const config& here,
                                                                         const string_map& own);

/// The contents of a list of files (dataset/listing/found_files.hpp) at the path `list`. Refuses (errc::config) a line outside
/// the folders in `own`.
result<void> check_list(const std::string& list, std::string_view text, const string_map& own);

/// The same for the lists that this config names on the host. Reads them.
result<void> check_lists(const config& here, const string_map& own);

}  // namespace penstock::hosts
