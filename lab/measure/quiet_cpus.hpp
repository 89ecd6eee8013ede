// Quiet CPUs: which CPUs are quick at the moment, and the threads of this process kept on them.
//
// A CPU of a shared virtual machine is slow for milliseconds to minutes, as if its core's other thread were busy, while
// others of the same machine are quick. With fewer threads than CPUs, times then tell where the system put the threads.
// So the engine looks at every CPU before each round and takes the quickest (Protocol::quiet_cpus). It chooses in view
// of this probe alone and before the round has any sample, and all contenders of the round run on the same CPUs.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace attune::lab {

struct Cpu {
  int number = 0;
  int core = 0;  // CPUs that share a core have the same
};

// The numbers of the `count` CPUs on which a probe took least, ascending. A core gives its second CPU only when every
// core has given one: two CPUs that are quick one at a time need not be quick together.
std::vector<int> quickest_cpus(const std::vector<Cpu>& cpus, const std::vector<double>& seconds, int count);

// The CPUs and threads of a process. An interface so that tests make both up. When it is gone, every thread may run
// where it could before.
class ProcessCpus {
 public:
  virtual ~ProcessCpus() = default;

  // Those the calling thread could use when this was made.
  virtual const std::vector<Cpu>& usable() const = 0;
  // What the same short work takes on each of them, by the calling thread, on one after the other.
  virtual std::vector<double> probe() = 0;
  // Every thread of the process runs on these from now on, and so do those it starts: the calling one on the first of
  // them, the others on the rest, if there is one.
  virtual void confine(const std::vector<int>& numbers) = 0;
};

using ProcessCpusSource = std::function<std::unique_ptr<ProcessCpus>()>;

// The process that calls this. Throws ATTUNE_UNSUPPORTED where the system does not tell or does not let its threads be
// moved.
std::unique_ptr<ProcessCpus> this_process();

// Probes, confines, and returns what was chosen.
std::vector<int> confine_to_quickest(ProcessCpus& process, int count);

// How many CPUs the calling thread may use.
int usable_cpu_count();

}  // namespace attune::lab
