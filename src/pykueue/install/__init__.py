"""What a cluster needs before the manager can run in it, as documents; and how they get there and away again.

documents   everything, in the order in which a cluster wants it; the operator's Configuration decides what is in it
rbac        who may do what, derived from the tables of kinds
program     the program itself: where it runs, with what settings, behind which Services
names       what installed things are called
applying    bringing documents to a cluster, and taking them away
layout      the same documents as files for `kubectl apply -k`
chart       the same documents as a Helm chart
"""
