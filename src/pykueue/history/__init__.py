"""The history of Workloads: what happened to each of them, kept after the object is deleted.

records     one Workload's record: a fold over the states of the object. Pure
rollups     charged usage by day, as sums over records. Pure
trouble_records
            when troubles of Workloads began and ended. Pure
learning    run-time estimates from past runs. Pure
budget_periods, budget_accounts, budget_answers, budget_rules
            what Budgets count and answer. Pure
queries     filters, columns, groups and times as users write them. Pure
store       records in SQLite; the only module with SQL
swf         the Standard Workload Format, out and in
"""
