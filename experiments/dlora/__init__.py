"""dLoRA (OSDI'24): its calibrations, and the day of the trace that its workload goes by."""
