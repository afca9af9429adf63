// `penstock doctor`: what is wrong with this machine, its GPU, or the job.
#pragma once

namespace penstock::cli {

class verb_table;
void add_doctor_command(verb_table& verbs);

}  // namespace penstock::cli
