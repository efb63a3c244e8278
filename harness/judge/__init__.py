"""The trusted side: inputs, buffers, truth, comparison and the outside clock. Never loads student code.

reveal        hands input sets to a worker, which calls its candidate once on each; what the clock times
lane          `call`: reveals of one set; `batch`: reveals of many, which are scored
null project  a candidate that does nothing; what its reveals cost is subtracted from those of others
turn          one candidate's reveals in a row, no other candidate running; the machine is sampled around it
"""
