"""student"""
